# Language, output folders and warnings, for everything that this project compiles.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endif()

set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast
             -Wnon-virtual-dtor -Woverloaded-virtual -Wundef)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND warnings -Wno-restrict)  # GCC bug 105651: "text" + std::string is reported.
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND WEFT_SANITIZE)
  list(APPEND warnings -Wno-maybe-uninitialized)  # False under -fsanitize, as GCC's manual says; std::regex is reported.
endif()
set(cuda_warnings -Xcompiler=-Wall,-Wextra,-Wshadow)
if(WEFT_WERROR)
  list(APPEND warnings -Werror)
  list(APPEND cuda_warnings -Werror=all-warnings)
endif()

# weft_warnings(target): the project's warnings for a target's own sources.
function(weft_warnings target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
                                           "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings}>")
endfunction()

if(WEFT_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${WEFT_SANITIZE};-fno-omit-frame-pointer>")
  if(WEFT_SANITIZE MATCHES undefined)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>")
  endif()
  add_link_options(-fsanitize=${WEFT_SANITIZE})
endif()
