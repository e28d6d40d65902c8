#!/usr/bin/env python3
"""Starts llama.cpp's own HTTP server, which the PyPI package xllamacpp holds, on the loopback interface.

usage: serve.py --model FILE [options]

Serves /v1/chat/completions, /v1/responses, /v1/messages, /v1/models, /health and /slots until SIGTERM or SIGINT.
Prints `READY http://127.0.0.1:PORT` once it listens.
"""

import argparse
import os
import signal

import xllamacpp


def options():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--alias", default="local", help="the model's name on the wire")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--ctx", type=int, default=8192, help="tokens the model can read")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--template", help="chat template file instead of the model's own")
    parser.add_argument("--reasoning-budget", type=int, default=-1, help="tokens of thinking; -1: no limit")
    return parser.parse_args()


def parameters(given):
    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.model_alias = {given.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = given.port
    params.n_ctx = given.ctx
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
    params.ui = False
    params.offline = True
    params.use_jinja = True
    params.warmup = False
    # Where a request names no temperature, the same prompt gives the same text.
    params.sampling.temp = 0.0
    params.sampling.seed = 1
    if given.template:
        with open(given.template) as template:
            params.chat_template = template.read()
    if given.reasoning_budget >= 0:
        params.sampling.reasoning_budget_tokens = given.reasoning_budget
    return params


def main():
    ending = {signal.SIGINT, signal.SIGTERM}
    # Blocked before the server makes its threads, so that none of them takes the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    server = xllamacpp.Server(parameters(options()))
    print("READY", server.listening_address, flush=True)
    signal.sigwait(ending)
    os._exit(0)


if __name__ == "__main__":
    main()
