# Manual pages of the installed programs. help2man makes them from what each program prints with --help, so nothing
# is written twice; without help2man there are none. A wheel has none, because `man` would not find them.
find_program(HELP2MAN_PROGRAM help2man)
find_program(GZIP_PROGRAM gzip)
set(manuals OFF)
if(HELP2MAN_PROGRAM AND GZIP_PROGRAM AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CROSSCOMPILING
   AND NOT CECL_WHEEL AND NOT CECL_SANITIZE AND NOT CECL_FUZZ)
  set(manuals ON)
endif()

# cecl_manual(NAME WORDS PROGRAM DEPENDENCY): makes the page of NAME; WORDS say what it is for.
function(cecl_manual name words program dependency)
  if(NOT manuals)
    return()
  endif()
  set(page ${PROJECT_BINARY_DIR}/man/${name}.1)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${page}.gz
                     COMMAND ${HELP2MAN_PROGRAM} --no-info --version-string=${PROJECT_VERSION} "--name=${words}"
                             --output=${page} ${program}
                     COMMAND ${GZIP_PROGRAM} -9nf ${page}
                     DEPENDS ${dependency} VERBATIM)
  add_custom_target(manual_${name} ALL DEPENDS ${page}.gz)
  install(FILES ${page}.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endfunction()
