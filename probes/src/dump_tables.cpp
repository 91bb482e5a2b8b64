#include "dump_tables.hpp"

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace h3diff::probes {
namespace {

template <class T> constexpr ColumnKind kind_of() {
  if constexpr (std::is_same_v<T, std::int32_t>)
    return ColumnKind::int32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return ColumnKind::int64;
  else if constexpr (std::is_same_v<T, double>)
    return ColumnKind::float64;
  else if constexpr (std::is_same_v<T, float[16]>)
    return ColumnKind::float32x16;
  else {
    static_assert(std::is_array_v<T> && std::is_same_v<std::remove_extent_t<T>, char>);
    return ColumnKind::text;
  }
}

// The field's name is the column's name.
#define H3DIFF_COLUMN(record, field)                                                                                   \
  TableColumn { #field, kind_of < decltype(record::field)>(), sizeof(record::field), offsetof(record, field) }

constexpr TableColumn index_columns[] = {
    H3DIFF_COLUMN(IndexRecord, step),         H3DIFF_COLUMN(IndexRecord, probe),
    H3DIFF_COLUMN(IndexRecord, segment),      H3DIFF_COLUMN(IndexRecord, dtype),
    H3DIFF_COLUMN(IndexRecord, stored_dtype), H3DIFF_COLUMN(IndexRecord, rows),
    H3DIFF_COLUMN(IndexRecord, cols),         H3DIFF_COLUMN(IndexRecord, digest),
    H3DIFF_COLUMN(IndexRecord, level),        H3DIFF_COLUMN(IndexRecord, zeros),
    H3DIFF_COLUMN(IndexRecord, nan),          H3DIFF_COLUMN(IndexRecord, inf),
    H3DIFF_COLUMN(IndexRecord, subnormal),    H3DIFF_COLUMN(IndexRecord, mean),
    H3DIFF_COLUMN(IndexRecord, std),          H3DIFF_COLUMN(IndexRecord, l2),
    H3DIFF_COLUMN(IndexRecord, min),          H3DIFF_COLUMN(IndexRecord, max),
    H3DIFF_COLUMN(IndexRecord, absmax),       H3DIFF_COLUMN(IndexRecord, absmax_row),
    H3DIFF_COLUMN(IndexRecord, absmax_col),   H3DIFF_COLUMN(IndexRecord, cosine),
    H3DIFF_COLUMN(IndexRecord, row_bands),    H3DIFF_COLUMN(IndexRecord, col_groups),
    H3DIFF_COLUMN(IndexRecord, sketch_k),     H3DIFF_COLUMN(IndexRecord, sketch_row),
};

constexpr TableColumn column_columns[] = {
    H3DIFF_COLUMN(ColumnRecord, probe), H3DIFF_COLUMN(ColumnRecord, column), H3DIFF_COLUMN(ColumnRecord, digest),
    H3DIFF_COLUMN(ColumnRecord, zeros), H3DIFF_COLUMN(ColumnRecord, nan),    H3DIFF_COLUMN(ColumnRecord, inf),
    H3DIFF_COLUMN(ColumnRecord, mean),  H3DIFF_COLUMN(ColumnRecord, std),    H3DIFF_COLUMN(ColumnRecord, l2),
    H3DIFF_COLUMN(ColumnRecord, min),   H3DIFF_COLUMN(ColumnRecord, max),    H3DIFF_COLUMN(ColumnRecord, absmax),
};

constexpr TableColumn dispatch_columns[] = {
    H3DIFF_COLUMN(DispatchRecord, op),        H3DIFF_COLUMN(DispatchRecord, implementation),
    H3DIFF_COLUMN(DispatchRecord, declared),  H3DIFF_COLUMN(DispatchRecord, calls),
    H3DIFF_COLUMN(DispatchRecord, fallbacks),
};

constexpr TableColumn step_columns[] = {
    H3DIFF_COLUMN(StepRecord, step),
    H3DIFF_COLUMN(StepRecord, sigma_video),
    H3DIFF_COLUMN(StepRecord, sigma_audio),
    H3DIFF_COLUMN(StepRecord, sigma_video_next),
    H3DIFF_COLUMN(StepRecord, sigma_audio_next),
};

constexpr TableColumn unobserved_columns[] = {
    H3DIFF_COLUMN(UnobservedRecord, probe),
    H3DIFF_COLUMN(UnobservedRecord, reason),
};

#undef H3DIFF_COLUMN

Handle column_type(const TableColumn& column) {
  switch (column.kind) {
  case ColumnKind::text: return string_type(column.size);
  case ColumnKind::int32: return type_handle(H5Tcopy(H5T_STD_I32LE));
  case ColumnKind::int64: return type_handle(H5Tcopy(H5T_STD_I64LE));
  case ColumnKind::float64: return type_handle(H5Tcopy(H5T_IEEE_F64LE));
  case ColumnKind::float32x16: {
    const hsize_t dims[] = {16};
    return type_handle(H5Tarray_create2(H5T_IEEE_F32LE, 1, dims));
  }
  }
  return {};
}

Handle small_float(std::size_t exponent_bits, std::size_t mantissa_bits, std::size_t bias) {
  Handle type = type_handle(H5Tcopy(H5T_IEEE_F32LE));
  // The fields must lie inside the new precision before it may shrink.
  if (H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits) < 0 ||
      H5Tset_precision(type.get(), 16) < 0 || H5Tset_size(type.get(), 2) < 0 || H5Tset_ebias(type.get(), bias) < 0)
    return {};
  return type;
}

} // namespace

const TableLayout index_table{"/index", index_columns, sizeof(IndexRecord), 128};
const TableLayout column_table{"/columns", column_columns, sizeof(ColumnRecord), 256};
const TableLayout dispatch_table{"/dispatch", dispatch_columns, sizeof(DispatchRecord), 32};
const TableLayout step_table{"/steps", step_columns, sizeof(StepRecord), 64};
const TableLayout unobserved_table{"/unobserved", unobserved_columns, sizeof(UnobservedRecord), 32};

Handle table_type(const TableLayout& table, bool packed) {
  Handle type = type_handle(H5Tcreate(H5T_COMPOUND, table.record_size));
  for (const TableColumn& column : table.columns) {
    const Handle member = column_type(column);
    if (!member || H5Tinsert(type.get(), column.name, column.offset, member.get()) < 0)
      return {};
  }
  if (packed && H5Tpack(type.get()) < 0)
    return {};
  return type;
}

Handle element_type(DType dtype) {
  switch (dtype) {
  case DType::float64: return type_handle(H5Tcopy(H5T_IEEE_F64LE));
  case DType::float32: return type_handle(H5Tcopy(H5T_IEEE_F32LE));
  case DType::bfloat16: return small_float(8, 7, 127);
  case DType::float16: return small_float(5, 10, 15);
  case DType::int8: return type_handle(H5Tcopy(H5T_STD_I8LE));
  case DType::int32: return type_handle(H5Tcopy(H5T_STD_I32LE));
  case DType::int64: return type_handle(H5Tcopy(H5T_STD_I64LE));
  case DType::float8_e4m3fn:
  case DType::float8_e5m2:
  case DType::uint8:
  case DType::boolean: break;
  }
  return type_handle(H5Tcopy(H5T_STD_U8LE));
}

std::string_view field_text(const char* field, std::size_t size) { return {field, strnlen(field, size)}; }

bool set_field(char* field, std::size_t size, std::string_view text) {
  if (text.size() > size)
    return false;
  std::memset(field, 0, size);
  std::memcpy(field, text.data(), text.size());
  return true;
}

} // namespace h3diff::probes
