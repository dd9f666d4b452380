# find_package(torchps) defines the target torchps::torchps, which uses the torch of this Python environment. It does
# not call find_package(Torch), which needs the CUDA toolkit if torch is a CUDA build. Headers and libraries of Protobuf
# and Abseil are part of this package.
#
# The library contains Abseil's flags: a program may define ABSL_FLAGs, but must not link absl::flags.

get_filename_component(_torchps_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
get_filename_component(_torchps_torch "${_torchps_prefix}/../torch" ABSOLUTE)
if(NOT EXISTS "${_torchps_torch}/lib/libtorch_cpu.so")
  set(torchps_FOUND FALSE)
  set(torchps_NOT_FOUND_MESSAGE "torch is not in ${_torchps_torch}: install it into the same Python environment.")
  return()
endif()
if(NOT TARGET torchps::torchps)
  file(GLOB _torchps_library "${_torchps_prefix}/lib/libtorchps.so.*")
  file(GLOB _torchps_libraries "${_torchps_prefix}/lib/libprotobuf.so.*" "${_torchps_prefix}/lib/libabsl_*.so.*")
  list(FILTER _torchps_libraries EXCLUDE REGEX "libabsl_flags")
  add_library(torchps::torchps SHARED IMPORTED)
  # libtorch finds its own libraries, CUDA's among them, by its run path.
  set_target_properties(
    torchps::torchps
    PROPERTIES
      IMPORTED_LOCATION "${_torchps_library}"
      INTERFACE_COMPILE_FEATURES cxx_std_20
      INTERFACE_INCLUDE_DIRECTORIES
      "${_torchps_prefix}/include;${_torchps_torch}/include;${_torchps_torch}/include/torch/csrc/api/include"
      INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined"
      INTERFACE_LINK_LIBRARIES
      "${_torchps_torch}/lib/libtorch_cpu.so;${_torchps_torch}/lib/libc10.so;${_torchps_libraries}"
  )
  unset(_torchps_library)
  unset(_torchps_libraries)
endif()
unset(_torchps_prefix)
unset(_torchps_torch)
set(torchps_FOUND TRUE)
