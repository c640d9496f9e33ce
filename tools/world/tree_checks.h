// Checks of the prefix tree, the block records and the pins against each other (invariants 3, 4,
// 18). Owner: check(). Threads: none. Cost: O(blocks x depth of pinned paths).
#pragma once

#include <string>
#include <vector>

#include "cachesvc/core/engine.h"
#include "tools/world/checkers.h"

namespace kv::world {

// requires (both): engine.cache() is not null.
void check_tree(const core::Engine& engine, const Known& known, std::vector<std::string>& problems);
void check_pins(const core::Engine& engine, std::vector<std::string>& problems);

}  // namespace kv::world
