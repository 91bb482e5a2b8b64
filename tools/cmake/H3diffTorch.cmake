# libtorch as it comes with the Python package: asks the interpreter where it is unless Torch_DIR is set.
if(NOT Torch_DIR AND NOT CMAKE_PREFIX_PATH MATCHES "torch")
  foreach(python ${CMAKE_SOURCE_DIR}/.venv/bin/python ${Python3_EXECUTABLE})
    execute_process(COMMAND ${python} -c "import torch; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE torch_status)
    if(torch_status EQUAL 0)
      list(APPEND CMAKE_PREFIX_PATH ${torch_prefix})
      break()
    endif()
  endforeach()
endif()
if(NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST} AND NOT TORCH_CUDA_ARCH_LIST)
  set(TORCH_CUDA_ARCH_LIST "7.5;8.0;8.6;8.9;9.0;10.0;12.0") # else torch's configuration probes for a GPU
endif()
find_package(Torch REQUIRED)

# torch's headers carry a newer fmt than the system's library: targets that see torch use fmt header-only.
