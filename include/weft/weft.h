#pragma once

// All of weft that a serving backend needs. Beside it: weft/kernels.h (shipped kernels) and weft/safetensors.h.

#include <weft/buffer.h>
#include <weft/context.h>
#include <weft/error.h>
#include <weft/graph.h>
#include <weft/model.h>
#include <weft/prepared.h>
#include <weft/session.h>
