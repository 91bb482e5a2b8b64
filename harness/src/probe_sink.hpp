// Where the forward shows its tensors.
#pragma once
#include "tensor.hpp"
#include <string>

namespace h3diff::harness {

class ProbeSink {
public:
  virtual ~ProbeSink() = default;
  // Called in the order of docs/probes.md with the tensor as the forward holds it, on its device. The sink reads
  // now or keeps its own copy; it never writes.
  virtual void probe(const std::string& name, const at::Tensor& value, Halves halves = Halves::as_is) = 0;
};

// Probes of one module: prefix + name. Without a sink nothing is done, not even the name.
class Probe {
public:
  explicit Probe(ProbeSink* sink) : sink_(sink) {}
  Probe(const Probe& parent, const char* module, std::int64_t number) : sink_(parent.sink_) {
    if (sink_ != nullptr)
      prefix_ = parent.prefix_ + module + std::to_string(number) + ".";
  }
  void operator()(const char* name, const at::Tensor& value, Halves halves = Halves::as_is) const {
    if (sink_ != nullptr)
      sink_->probe(prefix_ + name, value, halves);
  }

private:
  ProbeSink* sink_;
  std::string prefix_;
};

} // namespace h3diff::harness
