// A dump whose writer dies, or whose disk fills up, at any moment: complete steps stay readable.
#include "commit_file.hpp"
#include "dump_sample.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

namespace h3diff::probes {
namespace {

using sample::Folder;

// Runs `work` in a child process and returns its exit status.
int in_child(const std::function<int()>& work) {
  const pid_t pid = fork();
  if (pid == 0)
    _exit(work());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

struct Shape {
  const char* what;
  int steps, rows, k;
  bool tensor;
};

// Every commit is cut after each of its writes; what was complete before it must be there, to the bit.
class CutCommit : public testing::TestWithParam<Shape> {};

TEST_P(CutCommit, LeavesTheStepsBeforeIt) {
  const Shape shape = GetParam();
  const Folder folder;
  int cuts = 0;
  for (int cut_step = 0; cut_step < shape.steps; ++cut_step) {
    for (int writes = 0;; ++writes) {
      const std::string path = folder.file("a.h5");
      const int status = in_child([&] {
        auto writer = DumpWriter::create({path, true}, sample::facts());
        if (!writer)
          return 100;
        for (int step = 0; step < cut_step; ++step)
          if (!sample::add_step(*writer, step, shape.rows, shape.k, shape.tensor))
            return 101;
        CommitFile::die_after(writes);
        if (!sample::add_step(*writer, cut_step, shape.rows, shape.k, shape.tensor))
          return 102;
        _exit(CommitFile::writes_allowed() > 0 ? 1 : 0); // 1: the commit was through before the limit
      });
      ASSERT_LE(status, 1);
      const auto dump = DumpReader::open(path + ".partial");
      ASSERT_TRUE(dump) << "step " << cut_step << " cut after " << writes << ": " << dump.error().message;
      EXPECT_EQ(sample::difference(*dump, cut_step, shape.rows), "") << "step " << cut_step << " after " << writes;
      ++cuts;
      if (status == 1) {
        EXPECT_EQ(sample::difference(*dump, cut_step + 1, shape.rows), "");
        break;
      }
    }
  }
  EXPECT_GT(cuts, 3 * shape.steps); // there was something to cut
}

INSTANTIATE_TEST_SUITE_P(Dump, CutCommit,
                         testing::Values(Shape{"tensors", 12, 2, 64, true},   // /tensors outgrows one node
                                         Shape{"chunks", 4, 400, 256, false}, // tables outgrow chunks
                                         Shape{"tree", 3, 4500, 256, false},  // sketches outgrow a B-tree node
                                         Shape{"digests", 3, 2, 0, false}),
                         [](const auto& one) { return one.param.what; });

TEST(DumpKill, FinishedStepsSurviveSigkill) {
  const Folder folder;
  int with_steps = 0;
  for (int round = 0; round < 20; ++round) {
    const std::string path = folder.file("round" + std::to_string(round));
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      auto writer = DumpWriter::create({path, false}, sample::facts());
      for (int step = 0; writer && sample::add_step(*writer, step, 40, 256, step % 3 == 0); ++step)
        if (write(told[1], &step, sizeof step) != sizeof step)
          break;
      _exit(1);
    }
    close(told[1]);
    int last = -1;
    ASSERT_EQ(read(told[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    std::this_thread::sleep_for(std::chrono::microseconds(300 + round * 3571 % 20000));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    for (int step = 0; read(told[0], &step, sizeof step) == static_cast<ssize_t>(sizeof step);)
      last = step;
    close(told[0]);
    const auto dump = DumpReader::open(path + ".partial");
    ASSERT_TRUE(dump) << "round " << round << ": " << dump.error().message;
    EXPECT_GE(static_cast<int>(dump->steps().size()), last + 1);
    EXPECT_EQ(sample::difference(*dump, last + 1, 40), "") << "round " << round;
    with_steps += last > 0;
    std::filesystem::remove(path + ".partial");
  }
  EXPECT_GT(with_steps, 5);
}

// A limit on the file's size stands for a full disk: both are a write that fails.
TEST(DumpKill, AFullDiskIsTold) {
  for (const int room : {100, 5000, 70000, 200000, 400000}) {
    const Folder folder;
    const std::string path = folder.file("a.h5"), note = folder.file("note");
    const int complete = in_child([&] {
      auto writer = DumpWriter::create({path, false}, sample::facts());
      if (!writer || !sample::add_step(*writer, 0))
        return 100;
      std::signal(SIGXFSZ, SIG_IGN);
      const auto size = std::filesystem::file_size(writer->partial_path());
      const rlimit limit{size + static_cast<rlim_t>(room), RLIM_INFINITY};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 101;
      for (int step = 1; step < 90; ++step) {
        const auto ended = sample::add_step(*writer, step, 20, 64);
        if (ended)
          continue;
        const auto again = writer->finish({}); // goes on failing, and does no harm
        if (again || ended.error().code != ExitCode::environment || again.error().code != ExitCode::environment)
          return 102;
        sample::put_bytes(note, ended.error().message.substr(0, 99)); // below the limit
        return step;
      }
      return 103;
    });
    ASSERT_GE(complete, 1);
    ASSERT_LT(complete, 90);
    EXPECT_NE(sample::bytes_of(note).find(path + ".partial"), std::string::npos) << sample::bytes_of(note);
    EXPECT_FALSE(std::filesystem::exists(path));
    const auto dump = DumpReader::open(path + ".partial");
    ASSERT_TRUE(dump) << dump.error().message;
    EXPECT_EQ(static_cast<int>(dump->steps().size()), complete);
    EXPECT_EQ(dump->index().size(), 3U + 20U * static_cast<std::size_t>(complete - 1));
  }
}

} // namespace
} // namespace h3diff::probes
