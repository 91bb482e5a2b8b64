# Component `compare`: the front, the comparing libraries and their package. Component `run`: what needs libtorch.
include(CMakePackageConfigHelpers)

foreach(folder probes cases goldens)
  install(TARGETS h3diff_${folder} EXPORT h3diffTargets COMPONENT compare
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${folder}/include/h3diff DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT compare)
endforeach()
install(EXPORT h3diffTargets NAMESPACE h3diff:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/h3diff COMPONENT compare)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/h3diffConfig.cmake.in ${CMAKE_BINARY_DIR}/h3diffConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/h3diff)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/h3diffConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/h3diffConfig.cmake ${CMAKE_BINARY_DIR}/h3diffConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/h3diff COMPONENT compare)

install(DIRECTORY cases/data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/h3diff COMPONENT compare)
install(TARGETS h3diff RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT compare)
if(TARGET h3diff-torch)
  install(TARGETS h3diff-torch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT run)
endif()
