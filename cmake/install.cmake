# `cmake --install`: the library, its headers, the command, and the package that find_package(onestep) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onestep)
install(TARGETS onestep onestep_data EXPORT onestepTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET onestep_command)
  install(TARGETS onestep_command)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/onestep TYPE INCLUDE)
install(EXPORT onestepTargets NAMESPACE onestep:: DESTINATION ${package_dir})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/onestepConfig.cmake.in ${PROJECT_BINARY_DIR}/onestepConfig.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onestepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/onestepConfig.cmake ${PROJECT_BINARY_DIR}/onestepConfigVersion.cmake
        DESTINATION ${package_dir})
