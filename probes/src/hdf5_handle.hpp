// The HDF5 C API, wrapped once: owned ids, and failures as values with HDF5's own words.
#pragma once
#include <hdf5.h>

#include <string>
#include <string_view>
#include <utility>

namespace h3diff::probes {

// An HDF5 id that is closed when it goes out of scope. Invalid if the call that made it failed.
class Handle {
public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      id_ = std::exchange(other.id_, -1);
      close_ = other.close_;
    }
    return *this;
  }
  ~Handle() { reset(); }

  explicit operator bool() const { return id_ >= 0; }
  hid_t get() const { return id_; }
  bool reset(); // closes; false if HDF5 says that closing failed

private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

Handle file_handle(hid_t);
Handle group_handle(hid_t);
Handle dataset_handle(hid_t);
Handle space_handle(hid_t);
Handle type_handle(hid_t);
Handle attribute_handle(hid_t);
Handle list_handle(hid_t); // a property list

// Starts the library if need be and keeps it from printing its error stack. Call before any other HDF5 call.
void start_hdf5();

// The innermost message of the calling thread's error stack, then clears the stack.
std::string hdf5_message();

// A string type of `size` bytes, NUL-padded UTF-8.
Handle string_type(std::size_t size);

} // namespace h3diff::probes
