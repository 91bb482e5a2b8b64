// A case's parts as JSON, for the files that stand outside a CaseSpec (case.json of a bundle).
#pragma once
#include "h3diff/cases/case_spec.hpp"
#include <nlohmann/json.hpp>

namespace h3diff::cases {

Result<void> read_shape(const nlohmann::json&, const std::string& source, probes::ModelShape& out);
nlohmann::ordered_json shape_json(const probes::ModelShape&);
nlohmann::ordered_json case_json(const CaseSpec&);

} // namespace h3diff::cases
