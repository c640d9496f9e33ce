// The wire codec: the only place that sees both FlatBuffers and core values. Everything of it in
// one include; each part says in its own header who owns it, its threads and its cost.
#pragma once

#include "cachesvc/wire/attach_codec.h"     // attach socket: packets <-> AttachRequest, AttachReply
#include "cachesvc/wire/counter_names.h"    // the names under which counters are reported
#include "cachesvc/wire/id128.h"            // boot ids and secrets
#include "cachesvc/wire/reply_encoder.h"    // core::Reply, core::Notice -> frame
#include "cachesvc/wire/request_decoder.h"  // frame -> core::InputView
#include "cachesvc/wire/shell_counters.h"   // what the shell counts, reported beside the core's
