// Ten transfers a second, each a transaction over two collections, until it is told to end.
const bank = db.getMongo().getDB("bank");
for (let id = 1; id <= 100; id++) {
  bank.accounts.updateOne({ _id: id }, { $setOnInsert: { balanceCents: NumberLong(1000000) } }, { upsert: true });
}
if (!bank.getCollectionNames().includes("transfers")) bank.createCollection("transfers");
const session = db.getMongo().startSession();
const work = session.getDatabase("bank");
const any = () => 1 + Math.floor(Math.random() * 100);
while (true) {
  const cents = NumberLong(1 + Math.floor(Math.random() * 1000));
  const [source, target] = [any(), any()];
  session.withTransaction(() => {
    work.accounts.updateOne({ _id: source }, { $inc: { balanceCents: NumberLong(-cents) } });
    work.accounts.updateOne({ _id: target }, { $inc: { balanceCents: cents } });
    work.transfers.insertOne({ source, target, cents, at: new Date() });
  });
  sleep(100);
}
