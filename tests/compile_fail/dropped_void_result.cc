// Nor can one that carries no value.
#include "allocator/base/result.h"

kv::Result<void> f() { return {}; }

#ifdef MISUSE
void g() { f(); }
#else
bool g() { return f().has_value(); }
#endif
