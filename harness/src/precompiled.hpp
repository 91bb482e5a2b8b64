// The headers that every torch-seeing source of this folder needs; CMake precompiles them.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/TensorOperators.h>
#include <optional>
#include <string>
#include <vector>
