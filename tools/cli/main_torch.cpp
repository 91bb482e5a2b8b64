// h3diff-torch: the verbs that need libtorch. h3diff starts it with the words that it was given itself.
#include "bench_report.hpp"
#include "run_arguments.hpp"
#include "verbs_torch.hpp"

int main(int argc, char** argv) {
  using namespace h3diff::cli;
  return run_program(argc, argv, "h3diff", "The verbs of h3diff that need libtorch; start them as h3diff VERB",
                     [](CLI::App& app, Program& program) {
                       add_run(app, program);
                       add_bench_probe(*add_bench(app), program);
                       add_facts(app, program);
                     });
}
