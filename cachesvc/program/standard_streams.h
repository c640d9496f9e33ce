// Standard input, output and error of a program, at its start and at its end.
// Owner: every `main` of the tree. Threads: the main thread, before and after all others. Cost: a
// few system calls.
#pragma once

namespace kv::program {

// First of all in main. Opens /dev/null in place of each of 0, 1 and 2 that is closed: else the
// first files and sockets of the program get these numbers, and what it says goes into them.
// Without a /dev/null there the process ends with exit code 1.
void keep_standard_streams();

// Last of all in main: writes out what was printed. Where that cannot be written (a full disk): a
// line on stderr, and 1 in place of exit code 0, as the result is lost.
[[nodiscard]] int finish_output(int exit_code);

}  // namespace kv::program
