#include "weight_source.hpp"

namespace h3diff::harness {

WeightSource WeightSource::from(const cases::Checkpoint& checkpoint) {
  WeightSource source;
  source.label = checkpoint.path();
  for (const cases::WeightInfo& info : checkpoint.weights())
    source.entries.push_back({info.name, info.dtype, info.shape});
  source.read = [&checkpoint](const Entry& entry, std::span<std::byte> out) {
    return checkpoint.read(entry.name, out);
  };
  return source;
}

WeightSource WeightSource::from(const cases::CaseSpec& spec) {
  WeightSource source;
  source.label = "case " + spec.name;
  for (const cases::SyntheticWeight& weight : cases::weight_list(spec))
    source.entries.push_back({weight.name, weight.dtype, weight.shape});
  source.read = [&spec](const Entry& entry, std::span<std::byte> out) -> Result<void> {
    const cases::SyntheticWeight weight{entry.name, entry.shape, entry.dtype};
    cases::fill_weight(spec, weight, 0, static_cast<std::int64_t>(out.size() / probes::item_size(entry.dtype)),
                       out.data());
    return {};
  };
  return source;
}

} // namespace h3diff::harness
