# weft_add_tests: one Catch2 program a layer, registered with ctest case by case.
if(Catch2_VERSION VERSION_LESS 3)
  set(weft_refuse_no_tests -w NoTests)
else()
  set(weft_refuse_no_tests -w UnmatchedTestSpec)
endif()

# Left out are cases that a sanitizer slows down too much, that end their process on purpose, that fork it, or that
# count calls of the C library, which a sanitizer takes itself.
set(weft_sanitized 0)
if(WEFT_SANITIZE)
  set(weft_sanitized 1)
  set(weft_excluded "~[big]~[long]~[fault]~[fork]~[counted]")
endif()

# GCC 12's ThreadSanitizer cannot place its shadow under a randomised address space.
if(WEFT_SANITIZE MATCHES thread)
  execute_process(COMMAND setarch -R true RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
  if(NOT refused EQUAL 0)
    message(STATUS "The system refuses setarch -R, so the tests run with a randomised address space.")
  else()
    set(weft_test_launcher setarch -R)
  endif()
endif()

# What the shared objects and the tests are compiled with; equal options are what lets them share a precompiled header.
function(weft_test_options target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE WEFT_CUDA=$<BOOL:${WEFT_CUDA}>
                                               WEFT_SANITIZED=${weft_sanitized}
                                               WEFT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  target_link_libraries(${target} PRIVATE weft_internal Catch2::Catch2)
  weft_warnings(${target})
endfunction()

function(weft_test_support target)
  weft_test_options(${target})
  target_precompile_headers(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/tests/catch.h>)
  # Catch2 2.13 puts its implementation where the header is included after a macro.
  set_source_files_properties(main.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# Registers the cases of a program that `spec` leaves, under "<device>: <layer>/<name>", to run on `device`.
function(weft_discover layer device spec)
  set(target weft_${layer}_tests)
  set(prefix "${device}: ${layer}/")
  catch_discover_tests(${target} TEST_SPEC "${spec}" TEST_PREFIX "${prefix}" EXTRA_ARGS ${weft_refuse_no_tests}
                       PROPERTIES ENVIRONMENT WEFT_TEST_DEVICE=${device} TIMEOUT 1500)
  set_property(GLOBAL APPEND_STRING PROPERTY weft_test_programs "${prefix}|$<TARGET_FILE:${target}>|${spec}\n")
endfunction()

# weft_add_tests(layer sources...): sources stand in the folder of the layer.
#
# Every layer runs on the host device, and a second time on the GPU with WEFT_TEST_DEVICE=cuda; the layer "cuda" runs on
# the GPU alone. A layer without sources is left out.
function(weft_add_tests layer)
  if(NOT ARGN)
    return()
  endif()
  set(target weft_${layer}_tests)
  list(TRANSFORM ARGN PREPEND ${layer}/ OUTPUT_VARIABLE sources)
  add_executable(${target} ${sources} $<TARGET_OBJECTS:weft_test_support>)
  weft_test_options(${target})
  target_precompile_headers(${target} REUSE_FROM weft_test_support)
  set_property(TARGET ${target} PROPERTY CROSSCOMPILING_EMULATOR ${weft_test_launcher})
  if(NOT layer STREQUAL cuda)
    weft_discover(${layer} host "~[cuda-only]${weft_excluded}")
  endif()
  if(WEFT_TEST_DEVICE STREQUAL cuda)
    weft_discover(${layer} cuda "~[host-only]${weft_excluded}")
  endif()
endfunction()

# weft_add_checks(): what is checked of the tree and the build beside behaviour.
function(weft_add_checks)
  set(scripts ${PROJECT_SOURCE_DIR}/tests/scripts)

  add_test(NAME "check: format" COMMAND ${scripts}/format)
  set_tests_properties("check: format" PROPERTIES SKIP_RETURN_CODE 77)
  add_test(NAME "check: layering" COMMAND ${scripts}/layering)
  add_test(NAME "check: setup" COMMAND ${scripts}/setup)
  add_test(NAME "check: cases for one device are listed" COMMAND ${scripts}/device_exceptions)
  add_test(NAME "check: every rule has a test" COMMAND ${scripts}/rules)
  add_test(NAME "check: C++ of the tree in the docs is as it stands there" COMMAND ${scripts}/snippets)
  add_test(NAME "check: mutants fit the sources" COMMAND ${PROJECT_SOURCE_DIR}/tools/mutate --check)

  if(WEFT_CUDA)
    add_test(NAME "check: shipped kernels wait for their dependencies"
             COMMAND ${scripts}/programmatic_waits ${CMAKE_CUDA_COMPILER})
  endif()

  get_property(programs GLOBAL PROPERTY weft_test_programs)
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/test_programs CONTENT "${programs}")
  add_test(NAME "check: ctest runs every case"
           COMMAND ${scripts}/test_count ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/test_programs
                   ${weft_test_launcher})

  if(WEFT_SANITIZE)
    return()
  endif()

  # Each public header in a source of its own, twice.
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR}/include/weft CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/include/weft/*.h)
  if(NOT WEFT_CUDA)
    list(REMOVE_ITEM headers cuda.h)
  endif()
  add_library(weft_headers OBJECT EXCLUDE_FROM_ALL)
  foreach(header IN LISTS headers)
    configure_file(headers.cpp.in headers/${header}.cpp @ONLY)
    target_sources(weft_headers PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/headers/${header}.cpp)
  endforeach()
  target_link_libraries(weft_headers PRIVATE weft spdlog::spdlog_header_only $<$<BOOL:${WEFT_CUDA}>:CUDA::toolkit>)
  weft_warnings(weft_headers)
  add_test(NAME "check: headers compile alone"
           COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target weft_headers)

  if(WEFT_INSTALL)
    add_test(NAME "check: an installed weft is found and used"
             COMMAND ${scripts}/consumer ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/consumer
                     ${PROJECT_SOURCE_DIR}/tests/consumer -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
                     -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE})
  endif()
  if(BUILD_SHARED_LIBS)
    add_test(NAME "check: the shared library exports the API alone"
             COMMAND ${scripts}/exports $<TARGET_FILE:weft> ${PROJECT_SOURCE_DIR}/include)
  endif()
endfunction()
