#pragma once

// Marks a function that is compiled for the host and, by NVRTC or nvcc, for a GPU: from one text,
// so that both give the same bits. It includes nothing but such headers, <cstdint> and <cstring>.
//
// On the host it is inlined everywhere, as loops that are compiled for each instruction set need it
// (common/cpu/instruction_set.h).
#ifdef __CUDACC__
#define TPS_HOST_DEVICE __host__ __device__
#else
#define TPS_HOST_DEVICE [[gnu::always_inline]]
#endif
