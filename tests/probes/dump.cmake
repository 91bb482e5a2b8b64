h3diff_test(test_probes_lists
  SOURCES test_aliases.cpp test_capture.cpp test_graph.cpp test_segments.cpp
  LIBRARIES h3diff::probes)
target_compile_definitions(test_probes_lists PRIVATE H3DIFF_ALIASES="${CMAKE_SOURCE_DIR}/probes/aliases")

h3diff_test(test_probes_dump
  SOURCES test_dump.cpp test_dump_damage.cpp test_dump_kill.cpp test_dump_refused.cpp test_dump_tools.cpp
  LIBRARIES h3diff::probes hdf5::hdf5 fmt::fmt)
target_include_directories(test_probes_dump PRIVATE ${CMAKE_SOURCE_DIR}/probes/src)

# Readers that are not ours; the tests skip without them.
find_program(H3DIFF_H5DUMP h5dump)
set(python_with_packages ${CMAKE_SOURCE_DIR}/.venv/bin/python)
if(NOT EXISTS ${python_with_packages})
  set(python_with_packages ${Python3_EXECUTABLE})
endif()
target_compile_definitions(test_probes_dump PRIVATE H3DIFF_H5DUMP="$<$<BOOL:${H3DIFF_H5DUMP}>:${H3DIFF_H5DUMP}>"
                                                    H3DIFF_PYTHON="${python_with_packages}")

add_test(NAME alias_tables_cover_the_packages
         COMMAND ${python_with_packages} ${CMAKE_CURRENT_SOURCE_DIR}/test_aliases.py)
set_tests_properties(alias_tables_cover_the_packages PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
