// Ids are names, not numbers: no arithmetic on them.
#include "allocator/base/ids.h"

#ifdef MISUSE
kv::BlockId next(kv::BlockId block) { return block + 1; }
#else
kv::BlockId next(kv::BlockId block) { return kv::BlockId(block.value + 1); }
#endif
