// A slot is no block: ids of different kinds do not convert.
#include "allocator/base/ids.h"

kv::BlockId f(kv::BlockId block) { return block; }

#ifdef MISUSE
kv::BlockId g() { return f(kv::SlotId(1)); }
#else
kv::BlockId g() { return f(kv::BlockId(1)); }
#endif
