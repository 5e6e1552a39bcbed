# `cmake --install`: the libraries, their headers, the command, and what find_package(onestep) and pkg-config read.
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

# add_pc(NAME LIBRARY DESCRIPTION REQUIRES REQUIRES_PRIVATE LIBS_PRIVATE): NAME.pc. What only a static library needs of others
# is private; where this library is static, whoever links it needs it, too.
cmake_path(APPEND CMAKE_INSTALL_PREFIX ${CMAKE_INSTALL_LIBDIR} OUTPUT_VARIABLE pc_libdir)
cmake_path(APPEND CMAKE_INSTALL_PREFIX ${CMAKE_INSTALL_INCLUDEDIR} OUTPUT_VARIABLE pc_includedir)
string(REPLACE "${CMAKE_INSTALL_PREFIX}" "\${prefix}" pc_libdir "${pc_libdir}")
string(REPLACE "${CMAKE_INSTALL_PREFIX}" "\${prefix}" pc_includedir "${pc_includedir}")
function(add_pc name library description requires requires_private libs_private)
  set(pc_name ${name})
  set(pc_library ${library})
  set(pc_description "${description}")
  set(pc_requires "${requires}")
  set(pc_requires_private "${requires_private}")
  set(pc_libs_private "${libs_private}")
  if(NOT BUILD_SHARED_LIBS)
    string(APPEND pc_requires " ${requires_private}")
    set(pc_library "${library} ${libs_private}")
  endif()
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/onestep.pc.in ${PROJECT_BINARY_DIR}/${name}.pc.in @ONLY)
  # The prefix may be another one when it is installed.
  install(CODE "
    file(READ \"${PROJECT_BINARY_DIR}/${name}.pc.in\" text)
    string(REGEX REPLACE \"^prefix=[^\\n]*\" \"prefix=\${CMAKE_INSTALL_PREFIX}\" text \"\${text}\")
    file(WRITE \"${PROJECT_BINARY_DIR}/${name}.pc\" \"\${text}\")")
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
list(JOIN LAPACK_LIBRARIES " " lapack)
list(JOIN BLAS_LIBRARIES " " blas)
add_pc(onestep onestep "${PROJECT_DESCRIPTION}" "" "libhwy fmt" "${lapack} ${blas} -pthread")
add_pc(onestep-data onestep_data "Readers of data files for onestep" "onestep" "fmt zlib" "-lbz2")
