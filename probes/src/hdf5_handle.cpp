#include "hdf5_handle.hpp"

namespace h3diff::probes {

bool Handle::reset() {
  const hid_t id = std::exchange(id_, -1);
  return id < 0 || close_ == nullptr || close_(id) >= 0;
}

Handle file_handle(hid_t id) { return {id, H5Fclose}; }
Handle group_handle(hid_t id) { return {id, H5Gclose}; }
Handle dataset_handle(hid_t id) { return {id, H5Dclose}; }
Handle space_handle(hid_t id) { return {id, H5Sclose}; }
Handle type_handle(hid_t id) { return {id, H5Tclose}; }
Handle attribute_handle(hid_t id) { return {id, H5Aclose}; }
Handle list_handle(hid_t id) { return {id, H5Pclose}; }

void start_hdf5() {
  static const bool started = [] {
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  static_cast<void>(started);
}

std::string hdf5_message() {
  std::string message;
  // Upwards is from the call that failed first to the API function.
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* entry, void* out) -> herr_t {
        auto& text = *static_cast<std::string*>(out);
        if (text.empty() && entry->desc != nullptr)
          text = entry->desc;
        return 0;
      },
      &message);
  H5Eclear2(H5E_DEFAULT);
  return message.empty() ? "no message from HDF5" : message;
}

Handle string_type(std::size_t size) {
  Handle type = type_handle(H5Tcopy(H5T_C_S1));
  if (H5Tset_size(type.get(), size) < 0 || H5Tset_strpad(type.get(), H5T_STR_NULLPAD) < 0 ||
      H5Tset_cset(type.get(), H5T_CSET_UTF8) < 0)
    return {};
  return type;
}

} // namespace h3diff::probes
