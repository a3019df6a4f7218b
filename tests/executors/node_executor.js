// An executor in another language: it knows the protocol, and nothing of Ergon.
"use strict";
const readline = require("node:readline");

const handlers = {
  add: async (ctx, a, b) => a + b,
  reverse: async (ctx, text) => [...text].reverse().join(""),
  context: async (ctx) => ctx,
  fail: async (ctx, message) => { throw new RangeError(message); },
  retry: async (ctx) => {
    if (ctx.attempt < 2) throw Object.assign(new Error("not yet"), { retryAfter: 0.05 });
    return `attempt ${ctx.attempt}`;
  },
  forever: () => new Promise(() => setInterval(() => {}, 1000)),
};

async function outcomeOf(request) {
  const handler = handlers[request.function_name];
  if (!handler) return { status: "error", error_type: "handler_not_found", error_message: request.function_name };
  try {
    const result = await handler(request.context, ...request.args);
    return { status: "success", result };
  } catch (error) {
    const told = { error_type: error.name, error_message: error.message };
    return "retryAfter" in error
      ? { status: "retry", retry_after_seconds: error.retryAfter, ...told }
      : { status: "error", ...told };
  }
}

readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const request = JSON.parse(line);
  const empty = { result: null, error_message: null, error_type: null, retry_after_seconds: null };
  console.log(JSON.stringify({ job_id: request.job_id, ...empty, ...(await outcomeOf(request)) }));
});
