// The verbs of h3diff-torch.
#pragma once
#include "program.hpp"

namespace h3diff::cli {

void add_run(CLI::App&, Program&);               // verb_run.cpp
void add_bench_probe(CLI::App& bench, Program&); // bench_probe.cpp
void add_facts(CLI::App&, Program&);             // verb_facts.cpp: what `h3diff doctor` asks this half

} // namespace h3diff::cli
