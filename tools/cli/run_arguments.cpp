#include "run_arguments.hpp"
#include "exit_codes.hpp"
#include "program.hpp"

namespace h3diff::cli {

CLI::App* add_run_options(CLI::App& app, RunArguments& to) {
  CLI::App* verb = add_verb(app, "run", "Run a case or a bundle with probes attached and write a dump",
                            "h3diff run tiny --profile diffusers-bf16 --capture 'stats,blocks.0.*=full' -o tiny.h5",
                            {0, 3, 5, interrupted_code});
  verb->add_option("SOURCE", to.source, "A bundle's folder, or the name of a case")->required()->type_name("");
  verb->add_option("--profile", to.profile, "Numerics profile (h3diff doctor lists them)")->required()->type_name("P");
  verb->add_option("-o,--output", to.output, "The dump; must not exist yet")->required()->type_name("DUMP");
  verb->add_option("--layout", to.layout, "The checkpoint's layout, where nothing tells raw from comfy")
      ->check(CLI::IsMember({"raw", "comfy", "diffusers"}))
      ->type_name("raw|comfy|diffusers");
  verb->add_option("--device", to.device, "cpu or cuda:N")->capture_default_str()->type_name("D");
  verb->add_option("--threads", to.threads, "CPU threads; results may depend on it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("--steps", to.steps, "Evaluations of the network (default: as the case says)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  verb->add_option("--seed", to.seed, "Seed of a case given by name")->type_name("N");
  verb->add_option("--capture", to.capture,
                   "LEVEL,PATTERN=LEVEL,...,budget=BYTES; LEVEL is off, digest, stats,\n"
                   "rows or full (default: as the case says)")
      ->type_name("SPEC");
  verb->add_option("--zero-columns", to.zero_columns,
                   "Set columns A to B-1 of the weights that match PATTERN to 0 after loading")
      ->type_name("PATTERN:A-B");
  verb->add_flag("--overwrite", to.overwrite, "Replace an existing DUMP");
  add_json_option(*verb, to.json);
  return verb;
}

CLI::App* add_bench_probe_options(CLI::App& bench, BenchProbeArguments& to) {
  CLI::App* verb = add_verb(bench, "probe",
                            "The one-pass CPU probe beside torch's mean, max, min and norm, on one tensor in one run",
                            "h3diff bench probe --size 256MiB --threads 2", {0, 5});
  verb->add_option("--size", to.size, "Size of the float32 tensor")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("256MiB")
      ->type_name("BYTES");
  verb->add_option("--rounds", to.rounds, "Rounds; medians are printed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("--threads", to.threads, "CPU threads of both sides")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->type_name("N");
  add_json_option(*verb, to.json);
  return verb;
}

} // namespace h3diff::cli
