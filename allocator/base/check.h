// Broken invariants stop the process, in every build: a wrong block served is worse than a stop.
// Never used for bytes that come from a wire, a disk or a user: those get an Error.
#pragma once

#include <cassert>

// glibc's own reporter: prints the expression and aborts, and keeps pure code free of IO calls.
#define KV_CHECK(condition) \
  ((condition)              \
       ? (void)0            \
       : __assert_fail(#condition, __FILE__, __LINE__, static_cast<const char*>(__func__)))

// For sweeps that cost more than O(1): only in debug builds.
#ifdef __OPTIMIZE__
#define KV_DCHECK(condition) ((void)0)
#else
#define KV_DCHECK(condition) KV_CHECK(condition)
#endif
