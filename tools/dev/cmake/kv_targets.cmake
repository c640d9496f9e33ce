# kv_library / kv_program / kv_test: declare a target, its folder's layer and its dependencies.
#
#   kv_library(NAME kv_allocator FOLDER allocator PURE
#              SOURCES a.cc HEADERS a.h DEPENDS kv_base EXTERNAL OpenSSL::Crypto)
#
# DEPENDS takes our own targets and is checked against the edges below: a forbidden edge stops the
# configuration. EXTERNAL takes third-party targets.
# HEADERS go into a header file set, so that all_verify_interface_header_sets compiles each alone.

# layer -> the layers that it may depend on (and itself).
set(KV_EDGES_base "")
set(KV_EDGES_allocator base)
set(KV_EDGES_tiering base allocator)
set(KV_EDGES_stores base allocator)
set(KV_EDGES_kernels_api base)
set(KV_EDGES_kernels base allocator kernels_api)
set(KV_EDGES_schemas "")
set(KV_EDGES_program "")
set(KV_EDGES_core base allocator tiering)
set(KV_EDGES_wire base allocator core schemas)
set(KV_EDGES_shell base allocator core wire schemas stores kernels_api program)
set(KV_EDGES_plugins base allocator schemas kernels_api kernels program)
set(KV_EDGES_cachectl base plugins schemas program)
set(KV_EDGES_world base allocator tiering core)
# Of the shell only kv_config: one way to read a file of settings, and to write the service's.
set(KV_EDGES_cachesim base world core allocator tiering shell program)
set(KV_EDGES_cachebench base allocator tiering stores kernels_api kernels schemas core wire shell
  plugins world program)
set(KV_EDGES_tests ${KV_EDGES_cachebench} cachebench cachesim cachectl tests)

function(kv_check_edges name layer)
  foreach(dependency IN LISTS ARGN)
    if(NOT TARGET ${dependency})
      message(FATAL_ERROR "${name}: DEPENDS names ${dependency}, which is no target")
    endif()
    get_target_property(other ${dependency} KV_LAYER)
    if(NOT other)
      message(FATAL_ERROR "${name}: ${dependency} was not declared with kv_library")
    endif()
    if(NOT other STREQUAL layer AND NOT other IN_LIST KV_EDGES_${layer})
      message(FATAL_ERROR "${name}: layer '${layer}' must not depend on '${other}' (${dependency})")
    endif()
  endforeach()
endfunction()

function(kv_library)
  cmake_parse_arguments(ARG "PURE" "NAME;LAYER" "SOURCES;HEADERS;DEPENDS;EXTERNAL" ${ARGN})
  if(NOT DEFINED KV_EDGES_${ARG_LAYER})
    message(FATAL_ERROR "${ARG_NAME}: unknown layer '${ARG_LAYER}'")
  endif()
  kv_check_edges(${ARG_NAME} ${ARG_LAYER} ${ARG_DEPENDS})
  if(ARG_PURE AND ARG_EXTERNAL AND NOT ARG_EXTERNAL STREQUAL "OpenSSL::Crypto")
    message(FATAL_ERROR "${ARG_NAME}: a pure library links nothing external but libcrypto")
  endif()
  if(ARG_SOURCES)
    add_library(${ARG_NAME} STATIC ${ARG_SOURCES})
    set(visibility PUBLIC)
  else()
    add_library(${ARG_NAME} INTERFACE)
    set(visibility INTERFACE)
  endif()
  set_target_properties(${ARG_NAME} PROPERTIES KV_LAYER ${ARG_LAYER})
  if(ARG_PURE)
    set_target_properties(${ARG_NAME} PROPERTIES KV_PURE ON)
    set_property(GLOBAL APPEND PROPERTY KV_PURE_TARGETS ${ARG_NAME})
  endif()
  target_sources(${ARG_NAME} ${visibility}
    FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_include_directories(${ARG_NAME} ${visibility} ${CMAKE_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} ${visibility} ${ARG_DEPENDS} ${ARG_EXTERNAL})
endfunction()

function(kv_program)
  cmake_parse_arguments(ARG "" "NAME;LAYER" "SOURCES;DEPENDS;EXTERNAL" ${ARGN})
  kv_check_edges(${ARG_NAME} ${ARG_LAYER} ${ARG_DEPENDS})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  set_target_properties(${ARG_NAME} PROPERTIES KV_LAYER ${ARG_LAYER})
  target_include_directories(${ARG_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPENDS} ${ARG_EXTERNAL})
endfunction()

# A GoogleTest program; each of its tests is one ctest test. LABELS: `threaded` (several threads or
# processes: also run under the thread sanitizer), `release_only` (too slow under a sanitizer).
#   kv_test(NAME block_pool_test SOURCES block_pool_test.cc DEPENDS kv_allocator [TIMEOUT 60])
function(kv_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;DEPENDS;EXTERNAL;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  kv_program(NAME ${ARG_NAME} LAYER tests SOURCES ${ARG_SOURCES} DEPENDS ${ARG_DEPENDS}
    EXTERNAL ${ARG_EXTERNAL} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${ARG_NAME} PRIVATE
    KV_SOURCE_DIR="${CMAKE_SOURCE_DIR}" KV_BINARY_DIR="${CMAKE_BINARY_DIR}")
  gtest_discover_tests(${ARG_NAME} TEST_PREFIX "${ARG_NAME}." DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  if("threaded" IN_LIST ARG_LABELS)
    add_dependencies(kv_threaded_tests ${ARG_NAME})
  endif()
endfunction()

# The programs of tests labelled `threaded`: what the thread sanitizer runs.
add_custom_target(kv_threaded_tests)
# The fuzz targets (preset fuzz).
add_custom_target(kv_fuzz_targets)

# How long each fuzz test runs; 0: the smoke run, 20,000 inputs or 20 seconds.
set(KV_FUZZ_SECONDS 0 CACHE STRING "seconds of each fuzz test")

# A libFuzzer target with a smoke run in ctest; CORPUS names folders of seed inputs, in the source
# folder or, as a whole path, one that the build makes.
#   kv_fuzz(NAME wire_decode_fuzz DEPENDS kv_wire CORPUS corpus/wire_decode)
function(kv_fuzz)
  cmake_parse_arguments(ARG "" "NAME" "DEPENDS;CORPUS" ${ARGN})
  kv_program(NAME ${ARG_NAME} LAYER tests SOURCES ${ARG_NAME}.cc DEPENDS ${ARG_DEPENDS})
  target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
  add_dependencies(kv_fuzz_targets ${ARG_NAME})
  # New inputs go to a folder of the build; the seeds in the tree are only read.
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${ARG_NAME}.found)
  file(MAKE_DIRECTORY ${found})
  set(seeds "")
  foreach(folder IN LISTS ARG_CORPUS)
    cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND seeds ${folder})
  endforeach()
  set(length -runs=20000 -max_total_time=20)
  if(KV_FUZZ_SECONDS GREATER 0)
    set(length -max_total_time=${KV_FUZZ_SECONDS})
  endif()
  math(EXPR timeout "120 + 2 * ${KV_FUZZ_SECONDS}")
  add_test(NAME fuzz.${ARG_NAME} COMMAND ${ARG_NAME} ${length} -seed=1 ${found} ${seeds})
  set_tests_properties(fuzz.${ARG_NAME} PROPERTIES LABELS fuzz TIMEOUT ${timeout})
endfunction()

# Adds those of the named subfolders that exist, in this order (dependencies first).
function(kv_add_folders)
  foreach(folder IN LISTS ARGN)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
      add_subdirectory(${folder})
    endif()
  endforeach()
endfunction()
