# kv_cuda_objects: compiles .cu files with nvcc where there is one. Commands of our own and not
# CMake's CUDA language: that one takes the C++ flags of the whole tree, which nvcc does not know,
# and CMake 3.25 does not know C++20 in CUDA. Without nvcc the build goes on and says so.
set(KV_CUDA_ARCHITECTURES 90 CACHE STRING
  "Compute capabilities to build the CUDA kernels for; the last one also as PTX, for later devices")
find_program(KV_NVCC nvcc HINTS /usr/local/cuda/bin)
set(KV_CUDA OFF)
if(NOT KV_NVCC)
  message(STATUS "CUDA: no nvcc found; libcachesvc_cuda.so is not built")
elseif(KV_SANITIZE)
  message(STATUS "CUDA: libcachesvc_cuda.so is not built with a sanitizer; its kernels are tested")
else()
  get_filename_component(KV_CUDA_ROOT ${KV_NVCC} REALPATH)
  get_filename_component(KV_CUDA_ROOT ${KV_CUDA_ROOT}/../.. ABSOLUTE)
  find_path(KV_CUDA_INCLUDE cuda_runtime_api.h HINTS ${KV_CUDA_ROOT}/include
    ${KV_CUDA_ROOT}/targets/x86_64-linux/include)
  find_library(KV_CUDART cudart_static HINTS ${KV_CUDA_ROOT}/lib64
    ${KV_CUDA_ROOT}/targets/x86_64-linux/lib)
  if(KV_CUDART AND KV_CUDA_INCLUDE)
    set(KV_CUDA ON)
  else()
    message(STATUS "CUDA: nvcc without libcudart_static.a; libcachesvc_cuda.so is not built")
  endif()
endif()

#   kv_cuda_objects(OUT objects SOURCES a.cu b.cu): beside each object its ptxas report, NAME.ptxas
function(kv_cuda_objects)
  cmake_parse_arguments(ARG "" "OUT" "SOURCES" ${ARGN})
  set(code)
  foreach(arch IN LISTS KV_CUDA_ARCHITECTURES)
    list(APPEND code -gencode=arch=compute_${arch},code=sm_${arch})
  endforeach()
  list(GET KV_CUDA_ARCHITECTURES -1 last)
  list(APPEND code -gencode=arch=compute_${last},code=compute_${last})
  if(KV_CCACHE)
    set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${KV_CCACHE})
  endif()
  set(objects)
  foreach(source IN LISTS ARG_SOURCES)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
    # -no-compress: the PTX in the object stays text, which the gate in tests/kernels reads.
    # -fmad=false: products are fused where the source says so, in every kernel alike.
    add_custom_command(OUTPUT ${object} BYPRODUCTS ${object}.ptxas DEPFILE ${object}.d
      COMMAND ${CMAKE_SOURCE_DIR}/tools/dev/keep_report ${object}.ptxas ${launcher} ${KV_NVCC}
        -std=c++20 -O3 -fmad=false -I${CMAKE_SOURCE_DIR} ${code} -Xptxas -v -no-compress
        -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -MD -MF ${object}.d
        -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} ${CMAKE_SOURCE_DIR}/tools/dev/keep_report
      COMMENT "Building CUDA object ${source}.o" VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${object})
  endforeach()
  set(${ARG_OUT} ${objects} PARENT_SCOPE)
endfunction()
