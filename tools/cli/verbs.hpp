// One function a verb, one file a function. Each adds its subcommand and sets the program's action.
#pragma once
#include "program.hpp"

namespace h3diff::cli {

void add_case(CLI::App&, Program&); // verb_case.cpp, verb_case_export.cpp
void add_case_export(CLI::App& case_verb, Program&);
void add_compare(CLI::App&, Program&);             // verb_compare.cpp
void add_export(CLI::App&, Program&);              // verb_export.cpp
void add_import(CLI::App&, Program&);              // verb_import.cpp
void add_inspect(CLI::App&, Program&);             // verb_inspect.cpp
void add_doctor(CLI::App&, Program&);              // verb_doctor.cpp
void add_bench_compare(CLI::App& bench, Program&); // bench_compare.cpp

} // namespace h3diff::cli
