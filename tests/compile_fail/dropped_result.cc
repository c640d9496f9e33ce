// An error cannot be ignored by accident.
#include "allocator/base/result.h"

kv::Result<int> f() { return 1; }

#ifdef MISUSE
void g() { f(); }
#else
bool g() { return f().has_value(); }
#endif
