// Converses with an agent by the JavaScript client of A2A: `node client.mjs SDK URL TRANSPORT`. Prints a line of JSON
// for each step.
const [sdk, url, transport] = process.argv.slice(2);
const { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } = await import(
  `${sdk}/dist/client/index.js`
);
const { SendMessageRequest, StreamResponse, Task } = await import(`${sdk}/dist/index.js`);
const factory = new ClientFactory({
  ...ClientFactoryOptions.default,
  transports: [transport === "REST" ? new RestTransportFactory() : new JsonRpcTransportFactory()],
});
const client = await factory.createFromUrl(url);

let count = 0;
const request = (text, where = {}, configuration = undefined) =>
  SendMessageRequest.fromJSON({
    message: { messageId: `${transport}-${++count}`, role: "ROLE_USER", parts: [{ text }], ...where },
    ...(configuration ? { configuration } : {}),
  });
const told = (step, value) => console.log(JSON.stringify({ step, value }));
const shown = (task) => {
  const json = Task.toJSON(task);
  return { id: json.id, context: json.contextId, state: json.status.state, texts: texts(json.artifacts), asks: asks(json) };
};
const texts = (artifacts) => (artifacts ?? []).flatMap((artifact) => artifact.parts.map((part) => part.text));
const asks = (json) => json.status.message?.parts?.[0]?.text;
const events = async (stream) => {
  const found = [];
  for await (const event of stream) {
    const json = StreamResponse.toJSON(event);
    if (json.task) found.push(["task", json.task.id, json.task.status.state]);
    if (json.artifactUpdate) found.push(["artifact", json.artifactUpdate.artifact.parts[0].text]);
    if (json.statusUpdate) found.push(["status", json.statusUpdate.status.state]);
  }
  return found;
};

told("card", { name: (await client.getAgentCard()).name });
const context = { contextId: `of-${transport}` };
told("send", shown(await client.sendMessage(request("hello", context))));
told("stream", await events(client.sendMessageStream(request("again", context))));

// Left in the middle of its stream, and taken up again.
const slow = client.sendMessageStream(request("slowly", context));
const first = StreamResponse.toJSON((await slow.next()).value);
await slow.return();
told("resume", await events(client.resubscribeTask({ id: first.task.id, tenant: "" })));

const running = await client.sendMessage(request("slowly", context, { returnImmediately: true }));
told("cancel", shown(await client.cancelTask({ id: running.id, tenant: "", metadata: undefined })));

const asked = await client.sendMessage(request("ask me", context));
told("asked", shown(asked));
told("answered", shown(await client.sendMessage(request("blue", { ...context, taskId: asked.id }))));

told("get", shown(await client.getTask({ id: asked.id, tenant: "", historyLength: 1 })));
const listed = await client.listTasks({ tenant: "", contextId: context.contextId, status: 0, pageToken: "", pageSize: 2 });
told("list", { shown: listed.tasks.length, total: listed.totalSize, more: listed.nextPageToken !== "" });
try {
  await client.getTask({ id: "nothing", tenant: "" });
  told("unknown", "found");
} catch (error) {
  told("unknown", error.constructor.name);
}
