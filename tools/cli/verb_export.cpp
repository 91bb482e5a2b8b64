#include "exit_codes.hpp"
#include "h3diff/cases/safetensors.hpp"
#include "h3diff/probes/dump.hpp"
#include "terminal.hpp"
#include "verbs.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

namespace h3diff::cli {
namespace {

struct Arguments {
  std::string dump, as, probe = "*", output, json;
  bool overwrite = false;
};

using Rows = std::vector<const probes::IndexRow*>;

std::string step_name(std::int32_t step) { return step < 0 ? "weights" : fmt::format("step{}", step); }

// Names: step0/blocks.0.attn.q/video; a weight carries its probe's name alone.
std::string tensor_name(const probes::IndexRow& row) {
  return row.step < 0 ? row.probe : fmt::format("{}/{}/{}", step_name(row.step), row.probe, probes::name(row.segment));
}

Result<std::int64_t> write_tensors(const probes::DumpReader& reader, const Rows& rows, const Arguments& arguments) {
  std::vector<std::pair<const probes::IndexRow*, probes::StoredTensor>> tensors;
  std::vector<cases::SafetensorsWriter::Declared> declared;
  nlohmann::json described = nlohmann::json::object();
  for (const probes::IndexRow* row : rows) {
    if (row->level != probes::Level::full)
      continue;
    auto tensor = reader.tensor(*row);
    if (!tensor)
      return tensor.error();
    if (!tensor->has_value())
      continue;
    declared.push_back({tensor_name(*row), (*tensor)->dtype, {(*tensor)->rows, (*tensor)->cols}});
    described[declared.back().name] = {{"dtype", probes::name(row->dtype)},
                                       {"stored_dtype", probes::name(row->stored_dtype)},
                                       {"rows", row->rows},
                                       {"digest", row->digest.hex()}};
    tensors.emplace_back(row, **tensor);
  }
  if (tensors.empty())
    return bad_input(fmt::format("{}: holds no full tensor of a probe that matches {}; capture it with "
                                 "--capture 'PROBE=full'",
                                 arguments.dump, arguments.probe));
  std::map<std::string, std::string> metadata{
      {"format", "h3diff-export"},
      {"tensors", described.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)}};
  for (const char* fact : {"producer", "pipeline", "profile", "case", "case_digest", "checkpoint_digest"})
    if (const std::string text = reader.fact(fact); !text.empty())
      metadata[fact] = probes::printable(text);
  auto writer = cases::SafetensorsWriter::create(arguments.output, declared, metadata);
  if (!writer)
    return writer.error();
  std::vector<std::byte> part;
  for (const auto& [row, tensor] : tensors) {
    const std::int64_t row_bytes = tensor.cols * static_cast<std::int64_t>(probes::item_size(tensor.dtype));
    const std::int64_t at_once =
        std::max<std::int64_t>(1, (std::int64_t{16} << 20) / std::max<std::int64_t>(1, row_bytes));
    for (std::int64_t begin = 0; begin < tensor.rows; begin += at_once) {
      const std::int64_t count = std::min(at_once, tensor.rows - begin);
      part.resize(static_cast<std::size_t>(count * row_bytes));
      if (auto read = tensor.read_rows(begin, count, part.data()); !read)
        return read.error();
      if (auto written = writer->write(part); !written)
        return written.error();
    }
  }
  if (auto done = writer->finish(); !done)
    return done.error();
  return std::ssize(tensors);
}

// RFC 4180: a field with a comma, a quote or a line break is quoted, its quotes doubled.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos)
    return text;
  std::string out = "\"";
  for (const char c : text)
    out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string value(double number) { return std::isnan(number) ? "" : fmt::format("{}", number); }

Result<std::int64_t> write_statistics(const Rows& rows, const Arguments& arguments) {
  std::string text = "step,probe,segment,dtype,stored_dtype,rows,cols,level,digest,zeros,nan,inf,subnormal,mean,std,l2,"
                     "min,max,absmax,absmax_row,absmax_col,cosine\r\n";
  for (const probes::IndexRow* row : rows) {
    const probes::Statistics& s = row->statistics;
    text += fmt::format("{},{},{},{},{},{},{},{},{},", row->step, field(row->probe), probes::name(row->segment),
                        probes::name(row->dtype), probes::name(row->stored_dtype), row->rows, row->cols,
                        probes::name(row->level), row->digest.hex());
    if (row->level == probes::Level::digest)
      text += ",,,,,,,,,,,,"; // nothing was measured
    else
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}", s.zeros, s.nan, s.inf, s.subnormal, value(s.mean),
                          value(s.std), value(s.l2), value(s.min), value(s.max), value(s.absmax), s.absmax_row,
                          s.absmax_col, value(row->cosine));
    text += "\r\n";
  }
  const std::string partial = arguments.output + ".partial";
  std::FILE* file = std::fopen(partial.c_str(), "wb");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr)
    written = std::fclose(file) == 0 && written;
  if (!written || std::rename(partial.c_str(), arguments.output.c_str()) != 0) {
    const Error error =
        environment_error(fmt::format("{}: cannot be written ({})", arguments.output, std::strerror(errno)));
    if (file != nullptr)
      std::remove(partial.c_str());
    return error;
  }
  return std::ssize(rows);
}

int export_dump(const Arguments& arguments) {
  std::error_code ignored;
  if (!arguments.overwrite && std::filesystem::exists(arguments.output, ignored))
    return fail(usage_error(fmt::format("{}: exists already; --overwrite replaces it", arguments.output)),
                arguments.json);
  const auto reader = probes::DumpReader::open(arguments.dump);
  if (!reader)
    return fail(reader.error(), arguments.json);
  Rows rows;
  for (const probes::IndexRow& row : reader->index())
    if (probes::glob_match(arguments.probe, row.probe))
      rows.push_back(&row);
  if (rows.empty())
    return fail(usage_error(fmt::format("{}: no probe matches {}", arguments.dump, arguments.probe)), arguments.json);
  const bool tensors = arguments.as == "safetensors";
  const auto written = tensors ? write_tensors(*reader, rows, arguments) : write_statistics(rows, arguments);
  if (!written)
    return fail(written.error(), arguments.json);
  const std::string text = fmt::format("{}  {}\n", arguments.output, plural(*written, tensors ? "tensor" : "row"));
  const int code = arguments.json == "-" ? 0 : print_report(text, 0);
  return write_json({{"exit_code", code}, {"file", arguments.output}, {tensors ? "tensors" : "rows", *written}},
                    arguments.json, code);
}

} // namespace

void add_export(CLI::App& app, Program& program) {
  const auto to = std::make_shared<Arguments>();
  CLI::App* verb = add_verb(app, "export", "Write a dump's tensors as safetensors, or its statistics as CSV",
                            "h3diff export reference.h5 --as safetensors --probe 'blocks.0.*' -o expected.safetensors\n"
                            "  h3diff export reference.h5 --as csv -o statistics.csv",
                            {0, 3, 5});
  verb->add_option("DUMP", to->dump, "The dump")->required()->type_name("");
  verb->add_option("--as", to->as, "Tensors that were captured in full, or the statistics of every row")
      ->required()
      ->check(CLI::IsMember({"safetensors", "csv"}))
      ->type_name("safetensors|csv");
  verb->add_option("--probe", to->probe, "Only the probes that match")->capture_default_str()->type_name("GLOB");
  verb->add_option("-o,--output", to->output, "The file to write")->required()->type_name("FILE");
  verb->add_flag("--overwrite", to->overwrite, "Replace an existing FILE");
  add_json_option(*verb, to->json);
  verb->callback([&program, to] { program.action = [to] { return export_dump(*to); }; });
}

} // namespace h3diff::cli
