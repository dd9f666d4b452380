# find_package(torchps) defines the target torchps::torchps. Its headers use Torch, Protobuf and Abseil, so programs
# also link with these.
#
# The library contains Abseil's flags: a program may define ABSL_FLAGs, but must not link absl::flags.

include(CMakeFindDependencyMacro)
find_dependency(Torch)
find_dependency(Protobuf)
find_dependency(absl)

get_filename_component(_torchps_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET torchps::torchps)
  add_library(torchps::torchps SHARED IMPORTED)
  set_target_properties(
    torchps::torchps
    PROPERTIES IMPORTED_LOCATION "${_torchps_prefix}/lib/libtorchps.so"
               INTERFACE_COMPILE_FEATURES cxx_std_17
               INTERFACE_INCLUDE_DIRECTORIES "${_torchps_prefix}/include"
               INTERFACE_LINK_LIBRARIES
               "${TORCH_LIBRARIES};protobuf::libprotobuf;absl::status;absl::statusor;absl::strings")
endif()
unset(_torchps_prefix)
set(torchps_FOUND TRUE)
