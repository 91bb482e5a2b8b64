// Expected failures as values. Exceptions are left for a broken environment and for our own bugs.
#pragma once
#include <string>
#include <utility>
#include <variant>

namespace h3diff {

// The process exit codes (docs/exit-codes.md). An Error carries the one that its failure maps to.
enum class ExitCode : int {
  ok = 0,
  mismatch = 1,       // something diverged
  usage = 2,          // wrong usage: an unknown case, profile, option or probe pattern
  bad_input = 3,      // an unreadable or malformed file
  no_evidence = 4,    // not enough was compared
  environment = 5,    // no such device, a missing library, a full disk
  not_repeatable = 6, // the run does not repeat
  internal = 70,      // a bug of ours
};

struct Error {
  ExitCode code = ExitCode::internal;
  std::string message; // one sentence that names the file and the fact
};

inline Error usage_error(std::string message) { return {ExitCode::usage, std::move(message)}; }
inline Error bad_input(std::string message) { return {ExitCode::bad_input, std::move(message)}; }
inline Error environment_error(std::string message) { return {ExitCode::environment, std::move(message)}; }

// Result<T> is a T or an Error; Result<void> is success or an Error. Both convert from Error.
template <class T> class [[nodiscard]] Result {
public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }

private:
  std::variant<T, Error> state_;
};

template <> class [[nodiscard]] Result<void> {
public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}
  explicit operator bool() const { return !failed_; }
  const Error& error() const { return error_; }

private:
  Error error_;
  bool failed_ = false;
};

} // namespace h3diff
