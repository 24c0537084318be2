// What is packed in the page.

const conversations = JSON.parse(byId("index").textContent);
const positions = new Map(conversations.map((one, position) => [one.id, position]));

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

let chunk = { number: null, data: null };

async function evidenceOf(one) {
  if (chunk.number !== one.chunk) chunk = { number: one.chunk, data: unpacked(`evidence-${one.chunk}`) };
  return (await chunk.data)[one.id];
}

let words = null;

/** The words of every conversation, for the search; read when somebody first searches. */
async function loadWords() {
  words = conversations.map(() => "");
  if (!canUnpack) return;
  words = (await unpacked("words")).map(all => all.toLowerCase());
  drawList();
}

const canUnpack = typeof DecompressionStream === "function";
