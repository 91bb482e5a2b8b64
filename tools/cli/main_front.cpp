// h3diff: the front. Everything but the verbs that need libtorch, which it hands to h3diff-torch.
#include "bench_report.hpp"
#include "run_arguments.hpp"
#include "torch_half.hpp"
#include "verbs.hpp"
#include <memory>

namespace h3diff::cli {
namespace {

void hand_over(CLI::App* verb, Program& program, const std::string& json_path) {
  if (!torch_half_path())
    verb->group(""); // not listed, but answers with a reason
  verb->callback([&program, &json_path] {
    program.action = [&program, &json_path] { return fail(exec_torch_half(program.words), json_path); };
  });
}

} // namespace
} // namespace h3diff::cli

int main(int argc, char** argv) {
  using namespace h3diff::cli;
  RunArguments run;
  BenchProbeArguments bench_probe;
  return run_program(argc, argv, "h3diff", "Finds the first op at which a MiniMax-H3 forward pass leaves its reference",
                     [&](CLI::App& app, Program& program) {
                       add_case(app, program);
                       hand_over(add_run_options(app, run), program, run.json);
                       add_compare(app, program);
                       add_import(app, program);
                       add_export(app, program);
                       add_inspect(app, program);
                       CLI::App* bench = add_bench(app);
                       add_bench_compare(*bench, program);
                       hand_over(add_bench_probe_options(*bench, bench_probe), program, bench_probe.json);
                       add_doctor(app, program);
                     });
}
