# The CUDA Toolkit and kernels as fatbins.
set(WEFT_CUDA_MINIMUM 12.8)

if(WEFT_CUDA)
  # CUDACXX names the compiler itself, as in CMake's own search; the other variables name the toolkit's folder.
  if(NOT CMAKE_CUDA_COMPILER AND NOT "$ENV{CUDACXX}" STREQUAL "")
    find_program(CMAKE_CUDA_COMPILER NAMES "$ENV{CUDACXX}")
    if(NOT CMAKE_CUDA_COMPILER)
      message(FATAL_ERROR "CUDACXX is \"$ENV{CUDACXX}\", and there is no such program.")
    endif()
  endif()
  # The toolkit's own folder is seldom on PATH.
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDAToolkit_ROOT ENV CUDA_HOME
               PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "weft needs nvcc from CUDA Toolkit ${WEFT_CUDA_MINIMUM} or newer, and there "
                        "is none on PATH or in /usr/local/cuda. -DWEFT_CUDA=OFF builds weft with the "
                        "host device alone.")
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  if(CUDAToolkit_VERSION VERSION_LESS WEFT_CUDA_MINIMUM)
    message(FATAL_ERROR "weft needs CUDA Toolkit ${WEFT_CUDA_MINIMUM} or newer, and the toolkit in "
                        "${CUDAToolkit_BIN_DIR} is ${CUDAToolkit_VERSION}.")
  endif()
  # CMake 3.25 knows no C++20 mode of nvcc.
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
endif()

# weft_add_fatbin(target function source [OPTIONS nvcc options...])
#
# Compiles a .cu file to a fatbin (code for sm_80 and sm_90, PTX for what is newer), puts its bytes
# into the target and defines
#   namespace weft { std::span<const std::byte> <function>() noexcept; }
# over them. A build without CUDA defines the same function over no bytes. CMake before 3.27 has
# no CUDA_FATBIN_COMPILATION, hence the custom command.
#
# CMAKE_CUDA_ARCHITECTURES does not change the fatbins, by intent: sm_80, sm_90 and the PTX are what weft is compiled and
# tested for, and a library without one of them would fail at run time on a GPU that weft supports.
function(weft_add_fatbin target function source)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "" "OPTIONS")
  set(stub ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
  if(NOT WEFT_CUDA)
    configure_file(${PROJECT_SOURCE_DIR}/tools/cmake/fatbin_absent.cpp.in ${stub} @ONLY)
    target_sources(${target} PRIVATE ${stub})
    return()
  endif()

  cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE input)
  set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/${function}.fatbin)
  # nvcc escapes no space in the rule that it writes, so the rule names the file relative to this folder.
  add_custom_command(
    OUTPUT ${fatbin}
    COMMAND ${CMAKE_CUDA_COMPILER} -fatbin -std=c++20 -O3
            -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
            -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src ${arg_OPTIONS}
            $<$<BOOL:${WEFT_WERROR}>:-Werror=all-warnings>
            -MD -MT ${function}.fatbin -MF ${fatbin}.d -o ${fatbin} ${input}
    DEPENDS ${input}
    DEPFILE ${fatbin}.d
    COMMENT "Building fatbin ${source}"
    COMMAND_EXPAND_LISTS VERBATIM)
  configure_file(${PROJECT_SOURCE_DIR}/tools/cmake/fatbin.cpp.in ${stub} @ONLY)
  target_sources(${target} PRIVATE ${stub})
  set_source_files_properties(${stub} TARGET_DIRECTORY ${target} PROPERTIES OBJECT_DEPENDS ${fatbin})
  # The target may stand in another folder, where the rule of this one's files is unknown.
  add_custom_target(weft_fatbin_${function} DEPENDS ${fatbin})
  add_dependencies(${target} weft_fatbin_${function})
endfunction()
