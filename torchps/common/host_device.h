#pragma once

// Marks a function that is compiled both for the host and, by NVRTC or nvcc, for a GPU. Sharing the
// source ensures bit-identical results. Headers with such functions may include only each other,
// <cstdint> and <cstring>.
//
// On the host these functions are always inlined, as the loops compiled for each instruction set
// require (torchps/common/cpu/cpu_flags.h).
#ifdef __CUDACC__
#define TPS_HOST_DEVICE __host__ __device__
#else
#define TPS_HOST_DEVICE [[gnu::always_inline]]
#endif
