# Element types, digest, statistics, sketch. The tests reach into probes/src to choose the instruction set.
h3diff_test(test_measure
  SOURCES test_dtype.cpp test_digest.cpp test_measure.cpp test_measure_columns.cpp test_sketch.cpp
  LIBRARIES h3diff::probes)
target_include_directories(test_measure PRIVATE ${PROJECT_SOURCE_DIR}/probes/src)
h3diff_test(test_sketch_bound SOURCES test_sketch_bound.cpp LIBRARIES h3diff::probes)
target_include_directories(test_sketch_bound PRIVATE ${PROJECT_SOURCE_DIR}/probes/src)
