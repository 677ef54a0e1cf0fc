/* Repairs builds of llama.cpp by gcc for new processors; scripts/install compiles with this file.

   gcc's own _tile_loadconfig (seen with gcc 12) says that the instruction reads 8 bytes. It reads
   64, and the compiler drops the others, so that the first token ends the process. */
#include <immintrin.h>
#define _tile_loadconfig(config) \
    __asm__ volatile("ldtilecfg\t%X0" ::"m"(*(const char(*)[64])(config)))

/* With AVX512-FP16, ggml adds up products of 16 bits in 16 bits, and 128 at a time. Heads of 64
   numbers get no vectors at all then: flash attention takes five times as long for a token. */
#undef __AVX512FP16__
