// A bare number does not become an id by itself.
#include "allocator/base/ids.h"

kv::ClientId f(kv::ClientId client) { return client; }

#ifdef MISUSE
kv::ClientId g() { return f(7); }
#else
kv::ClientId g() { return f(kv::ClientId(7)); }
#endif
