# Debian packages, by `cpack -G DEB` in the build folder:
#   libcecl0.3      libcecl.so.0.3
#   libcecl-mpi0.3  libcecl_mpi.so.0.3, where the build has MPI
#   libcecl-dev     headers, CMake and pkg-config files, links for linkers
#   cecl-tools      cecl-run with the library in NCCL's place, cecl_info, cecl_perf and the other tools
# The first two have the version of their SONAME in their names, as in Debian.
set(soname ${CECL_SOVERSION})
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cecl)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CECL_PACKAGER "cecl <cecl@localhost>" CACHE STRING "Maintainer in Debian packages: Name <address>")
set(CPACK_PACKAGE_CONTACT "${CECL_PACKAGER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL library development tools)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

# cecl_package(COMPONENT NAME SECTION TEXT): a package, with the files that every package must have. TEXT is its
# description after the first line, for which CPack takes the project's description.
set(package_folder ${PROJECT_BINARY_DIR}/packages)
string(TIMESTAMP package_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${package_folder}/changelog "cecl (${PROJECT_VERSION}) unstable; urgency=medium

  * The changes are in CHANGELOG.md of the sources.

 -- ${CPACK_PACKAGE_CONTACT}  ${package_date}
")
file(WRITE ${package_folder}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: cecl

Files: *
Copyright: 2026 the authors of cecl
License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.
")
find_program(PACKAGE_GZIP gzip)
if(PACKAGE_GZIP) # -n: no date, so that equal builds give equal packages
  execute_process(COMMAND ${PACKAGE_GZIP} -9nkf ${package_folder}/changelog)
endif()
macro(cecl_package component name section text)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${text}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  install(FILES ${package_folder}/copyright DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name}
          COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${package_folder}/changelog.gz DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name}
          COMPONENT ${component} EXCLUDE_FROM_ALL OPTIONAL)
endmacro()

# cecl_library_package(COMPONENT LIBRARY NAME): installing the package renews the loader's cache, and packages that
# link LIBRARY learn which package they need.
macro(cecl_library_package component library name)
  string(TOUPPER ${component} upper)
  file(WRITE ${package_folder}/${name}/triggers "activate-noawait ldconfig\n")
  file(WRITE ${package_folder}/${name}/shlibs "${library} ${soname} ${name} (>= ${PROJECT_VERSION})\n")
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${package_folder}/${name}/triggers ${package_folder}/${name}/shlibs)
endmacro()

cecl_package(library libcecl${soname} libs
             "cecl moves data between the GPUs of one host by their copy engines.\nSMs stay with the computation. Without GPUs it runs on the CPU.")
cecl_library_package(library libcecl libcecl${soname})
cecl_package(development libcecl-dev libdevel
             "For development: headers, and files by which CMake and pkg-config\nfind the library.")
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS library)
cecl_package(tools cecl-tools science
             "Tools: cecl-run starts a program that uses NCCL, such as PyTorch, with\ncecl in NCCL's place. The others measure and explain.")
set(CPACK_COMPONENT_TOOLS_DEPENDS library)
if(CECL_MPI_ENABLED)
  list(APPEND CPACK_COMPONENTS_ALL library_mpi)
  cecl_package(library_mpi libcecl-mpi${soname} libs
               "For programs of MPI: ceclCommInitMpi makes a communicator of the ranks\nof an MPI communicator.")
  cecl_library_package(library_mpi libcecl_mpi libcecl-mpi${soname})
  set(CPACK_COMPONENT_LIBRARY_MPI_DEPENDS library)
  list(APPEND CPACK_COMPONENT_DEVELOPMENT_DEPENDS library_mpi)
  list(APPEND CPACK_COMPONENT_TOOLS_DEPENDS library_mpi)
endif()
include(CPack)
