#include "h3diff/harness/run.hpp"
#include "verbs_torch.hpp"
#include <nlohmann/json.hpp>

namespace h3diff::cli {

void add_facts(CLI::App& app, Program& program) {
  CLI::App* verb = add_verb(app, "facts", "What h3diff doctor asks this half: libtorch and devices, as JSON",
                            "h3diff-torch facts", {0});
  verb->group("");
  verb->callback([&program] {
    program.action = [] {
      const harness::TorchFacts facts = harness::torch_facts();
      return write_json({{"torch", facts.version},
                         {"cuda", facts.cuda},
                         {"isa", facts.isa},
                         {"mkl_cbwr", facts.mkl_cbwr},
                         {"cuda_available", facts.cuda_available},
                         {"devices", facts.devices}},
                        "-", 0);
    };
  });
}

} // namespace h3diff::cli
