# Language level, warnings, sanitizers and ccache, for every target alike.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_compile_options(-Wall -Wextra -Wconversion -Wshadow -Werror -ffp-contract=off
  -fstack-protector-strong)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  # -Og: sanitizer runs stay usable, stack traces stay readable.
  set(CMAKE_CXX_FLAGS_DEBUG "-Og -g1")
else()
  # NDEBUG is not set: KV_CHECK is on in every build.
  set(CMAKE_CXX_FLAGS_RELEASE "-O2")
  add_compile_definitions(_FORTIFY_SOURCE=2)
endif()

if(KV_SANITIZE)
  add_compile_options(-fsanitize=${KV_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KV_SANITIZE})
  if(KV_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # Asio 1.74 uses atomic_thread_fence
  endif()
endif()
if(KV_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(KV_CCACHE ccache)
if(KV_CCACHE)
  # base_dir lets clones in different folders share one cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${KV_CCACHE})
endif()
