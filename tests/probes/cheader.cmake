# The C header and the stream that it writes.
set(header_flags -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)
set(header_include ${CMAKE_SOURCE_DIR}/probes/include)

# The implementation as C99; what the tests below measure with.
add_library(c_header_c99 STATIC test_c_header_c99.c)
target_include_directories(c_header_c99 PRIVATE ${header_include})
target_compile_options(c_header_c99 PRIVATE ${header_flags})
set_target_properties(c_header_c99 PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
if(H3DIFF_SANITIZE)
  target_compile_options(c_header_c99 PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all)
endif()

# As C++20, declarations and implementation in separate includes; compiled only.
add_library(c_header_cxx20 OBJECT test_c_header_cxx20.cpp)
target_include_directories(c_header_cxx20 PRIVATE ${header_include})
target_compile_options(c_header_cxx20 PRIVATE ${header_flags})

h3diff_test(test_c_header SOURCES test_c_header.cpp LIBRARIES c_header_c99 h3diff::probes m)
h3diff_test(test_stream SOURCES test_stream.cpp test_stream_allocations.cpp LIBRARIES c_header_c99 h3diff::probes m)

# A runtime that is not ours, with the header in it.
add_executable(toy_runtime ${CMAKE_SOURCE_DIR}/tests/examples/toy_runtime/main.c
                           ${CMAKE_SOURCE_DIR}/tests/examples/toy_runtime/toy_graph.c)
target_include_directories(toy_runtime PRIVATE ${header_include})
target_compile_options(toy_runtime PRIVATE ${header_flags})
target_link_libraries(toy_runtime PRIVATE m)
set_target_properties(toy_runtime PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
if(H3DIFF_SANITIZE)
  target_compile_options(toy_runtime PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all)
  target_link_options(toy_runtime PRIVATE -fsanitize=address,undefined)
endif()
h3diff_test(test_stream_toy SOURCES test_stream_toy.cpp LIBRARIES h3diff::probes)
target_compile_definitions(test_stream_toy PRIVATE TOY_RUNTIME="$<TARGET_FILE:toy_runtime>")
add_dependencies(test_stream_toy toy_runtime)

# Every compiler at hand, as C99 and as C++20, with the flags of strict and of careless projects: it must compile
# without a warning, and print the same measurements as all others.
set(header_compilers "")
foreach(compiler gcc clang)
  find_program(H3DIFF_HEADER_${compiler} ${compiler})
  if(H3DIFF_HEADER_${compiler})
    list(APPEND header_compilers ${H3DIFF_HEADER_${compiler}})
  endif()
endforeach()
string(REPLACE ";" "," header_compilers "${header_compilers}")
string(REPLACE ";" "," header_flag_list "${header_flags}")
add_test(NAME c_header.compilers
         COMMAND ${CMAKE_COMMAND} -D COMPILERS=${header_compilers} -D FLAGS=${header_flag_list} -D INCLUDE=${header_include}
                 -D SOURCES=${CMAKE_CURRENT_SOURCE_DIR} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/c_header_compilers
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/test_c_header_compilers.cmake)
