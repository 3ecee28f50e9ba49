// In the search, pages with the words in their title come first, and members of classes last.
var Scorer = {
  objNameMatch: 4,
  objPartialMatch: 2,
  objPrio: { 0: 0, 1: 0, 2: -2 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([, title, , , score]) => {
    const words = new URLSearchParams(location.search).get("q") ?? "";
    return score + (title.toLowerCase().includes(words.trim().toLowerCase()) ? 10 : 0);
  },
};
