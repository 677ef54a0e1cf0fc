/* Repairs AMX in builds of llama.cpp by gcc, which scripts/install compiles with this file.

   gcc's own _tile_loadconfig (seen with gcc 12) says that the instruction reads 8 bytes. It reads
   64, and the compiler drops the others, so that the first token ends the process. */
#include <immintrin.h>
#define _tile_loadconfig(config) \
    __asm__ volatile("ldtilecfg\t%X0" ::"m"(*(const char(*)[64])(config)))
