# h3diff_library(NAME SOURCES ... PUBLIC ... PRIVATE ...)
# Target h3diff_NAME with alias h3diff::NAME; public headers in include/.
function(h3diff_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(h3diff_${name} STATIC ${ARG_SOURCES})
  add_library(h3diff::${name} ALIAS h3diff_${name})
  set_target_properties(h3diff_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(h3diff_${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(h3diff_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  target_compile_features(h3diff_${name} PUBLIC cxx_std_20)
  h3diff_settings(h3diff_${name})
endfunction()

# Warnings, sanitizers, and no contraction of a*b+c: results must not depend on the instruction set.
function(h3diff_settings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                           -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC bug 105651: "literal" + std::string warns of overlapping copies that cannot happen.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  if(H3DIFF_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(H3DIFF_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all
                                             -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
  if(H3DIFF_TIDY)
    set_target_properties(${target} PROPERTIES CXX_CLANG_TIDY "clang-tidy;--quiet")
  endif()
endfunction()

# h3diff_test(NAME SOURCES ... LIBRARIES ...): a GoogleTest program whose tests CTest runs one by one.
function(h3diff_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  h3diff_settings(${name})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120)
endfunction()

find_program(H3DIFF_CCACHE ccache)
if(H3DIFF_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${H3DIFF_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${H3DIFF_CCACHE})
endif()
find_program(H3DIFF_MOLD mold)
if(H3DIFF_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
